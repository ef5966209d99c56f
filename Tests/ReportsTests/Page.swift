import Foundation
import Testing

#if canImport(FoundationXML)
    import FoundationXML
#endif

/// A page as a strict XML parser reads it.
final class Page: NSObject, XMLParserDelegate {
    final class Element {
        let name: String
        let attributes: [String: String]
        /// The elements around it, the outermost first.
        let path: [String]
        var children: [Element] = []
        /// What it holds itself, and what everything in it holds.
        var own = ""
        var text = ""

        init(_ name: String, _ attributes: [String: String], _ path: [String]) {
            self.name = name
            self.attributes = attributes
            self.path = path
        }

        var all: [Element] { [self] + children.flatMap(\.all) }

        func all(_ name: String, _ style: String? = nil) -> [Element] {
            all.filter { element in
                element.name == name
                    && style.map {
                        (element.attributes["class"] ?? "").split(separator: " ").map(String.init).contains($0)
                    }
                        ?? true
            }
        }
    }

    private(set) var comments: [String] = []
    private var root: Element?
    private var open: [Element] = []
    private var fault: String?

    /// Reads a page.
    ///
    /// - Parameter html: the page.
    /// - Returns: its outermost element, and its comments.
    /// - Throws: a failed expectation where it is no XML.
    static func read(_ html: String) throws -> (root: Element, comments: [String]) {
        let page = Page()
        let parser = XMLParser(data: Data(html.utf8))
        parser.delegate = page
        let isWhole = parser.parse()
        try #require(isWhole && page.fault == nil, "line \(parser.lineNumber): \(page.fault ?? "no XML")")
        return (try #require(page.root), page.comments)
    }

    func parser(
        _ parser: XMLParser,
        didStartElement name: String,
        namespaceURI: String?,
        qualifiedName: String?,
        attributes: [String: String]
    ) {
        let element = Element(name, attributes, open.map(\.name))
        if let parent = open.last { parent.children.append(element) } else { root = element }
        open.append(element)
    }

    func parser(_ parser: XMLParser, didEndElement name: String, namespaceURI: String?, qualifiedName: String?) {
        open.removeLast()
    }

    func parser(_ parser: XMLParser, foundCharacters text: String) {
        open.last?.own += text
        for element in open { element.text += text }
    }

    func parser(_ parser: XMLParser, foundComment comment: String) { comments.append(comment) }

    func parser(_ parser: XMLParser, parseErrorOccurred error: any Error) { fault = "\(error)" }
}
