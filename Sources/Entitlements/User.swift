/// What the host application says of a user's access.
package enum UserType: String, Sendable, CaseIterable {
    case free
    case subscriber
}

/// The host application's account state.
package enum UserStatus: String, Sendable, CaseIterable {
    case active
    case onboarding
    case banned
    case bannedFinal = "banned_final"
    case toBeDeleted = "to_be_deleted"

    /// Whether the user may gain a type or assets.
    package var isEligible: Bool {
        switch self {
        case .active, .onboarding: true
        case .banned, .bannedFinal, .toBeDeleted: false
        }
    }
}

/// A row of the host's users, as it stands under our lock.
package struct User: Hashable, Sendable {
    package var id: String
    package var type: UserType
    package var status: UserStatus

    package init(id: String, type: UserType, status: UserStatus) {
        self.id = id
        self.type = type
        self.status = status
    }
}
