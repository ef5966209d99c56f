/// Passwords that are tried first, from the frequency list of the zxcvbn estimator (MIT licence): its first 12,000 without the digits
/// and signs around them, and all of twelve characters and more.
enum CommonPasswords {
    private static let words = Set(
        String(decoding: PackageResources.common_passwords_txt, as: UTF8.self).split(separator: "\n").map(String.init)
    )

    /// Whether a password is such a word, alone or between digits and signs, or digits alone.
    static func contains(_ password: String) -> Bool {
        let text = password.lowercased()
        let isSign = { (character: Character) in !character.isLetter }
        let core = String(text.drop(while: isSign).reversed().drop(while: isSign).reversed())
        return words.contains(text) || words.contains(core) || text.allSatisfy { $0.isNumber || $0.isWhitespace }
    }
}
