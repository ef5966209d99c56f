internal import Crypto
package import X509

extension StoreSimulator {
    /// What everything signed by the simulated App Store leads to; one for the process.
    package static var appStoreRoot: Certificate {
        get throws { try AppStoreCredentials.authority.get().certificates.root }
    }

    /// The key that requests to the simulated App Store have to be signed with, as a `.p8` file; one for the process.
    package static var appStoreKey: String { AppStoreCredentials.requestKey.pemRepresentation }

    /// The signed transaction that a device would have.
    ///
    /// - Returns: a `storekit_jws` proof; `nil` where there is no such transaction.
    package func appStoreProof(ofTransaction id: String) throws -> String? {
        try simulation.withState { state in
            state.shareWithAppStore(id)
            guard let found = state.appStore.find(id) else { return nil }
            return try state.appStore.writer(nowMs: state.clock.nowMs).transaction(found.purchase, of: found.account)
        }
    }
}
