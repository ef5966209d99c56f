/// Where and how a simulator listens.
package struct SimulatorConfiguration: Sendable {
    /// Address to bind; loopback by default, for the keys and customers are no secret.
    package var host: String
    /// TCP port; 0 lets the system choose one, which `onListening` is given.
    package var port: Int

    package init(host: String = "127.0.0.1", port: Int = 0) {
        self.host = host
        self.port = port
    }
}

/// Why a simulator cannot run.
package struct SimulatorError: Error, Sendable, CustomStringConvertible {
    /// What failed.
    package enum Code: String, Sendable, CaseIterable {
        /// Another program listens on the port already.
        case addressInUse
        /// The address is not of this machine, or the port needs privileges.
        case cannotListen
    }

    /// What failed.
    package var code: Code
    /// Address and port that were asked for.
    package var address: String

    package var description: String {
        switch code {
        case .addressInUse:
            "store simulator: \(address) is in use; stop the other program or choose another port (0: any free one)"
        case .cannotListen:
            "store simulator: cannot listen on \(address); check the address and whether the port needs privileges"
        }
    }
}
