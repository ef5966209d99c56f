/// Where a variable is set, when one process serves several apps.
package enum VariableScope: Hashable, Sendable {
    /// In the environment alone: there is one listener, one log and one way for operators to sign in.
    case process
    /// In an app's file alone: which database, which stores, whose users.
    case app
    /// In either: what the environment says is the default of every app.
    case either
}

extension Variable {
    package var scope: VariableScope {
        switch self {
        case .appsDirectory, .app, .httpHost, .httpPort, .adminHost, .adminPort, .adminNames, .consoleHost,
            .consolePort,
            .consoleURL, .oidcIssuer, .oidcClientID, .oidcClientSecret, .oidcScopes, .oidcGroupsClaim,
            .oidcSessionMinutes, .logLevel, .logFormat, .sqlDirectory, .httpTrustedProxies, .httpMaxConnections,
            .httpMaxConnectionsPerAddress:
            .process
        case .databaseURL, .databaseDirectURL, .consoleDatabaseURL, .reportDatabaseURL, .storeApps, .revenueCatAPIKey,
            .revenueCatProjectID, .revenueCatTransferAPIKey, .revenueCatWebhookAuthorization,
            .revenueCatWebhookSecret, .accountIDKeys, .accountIDNamespace, .appStoreIssuerID, .appStoreKeyID,
            .appStorePrivateKey, .appStoreBundleID, .appStoreAppID, .googlePlayServiceAccount,
            .googlePlayPackageName, .pubSubAudience, .pubSubServiceAccount, .onsideMerchantID,
            .onsideMerchantSecret, .onsideMerchantSecretEncoding, .onsideSecretKeyID, .onsideBundleID,
            .firebaseProjectID, .firebaseServiceAccount, .appTokenIssuer, .appTokenAudience, .outboxURL, .outboxSecret:
            .app
        case .mode, .sandbox, .revenueCatBaseURL, .revenueCatRequestsPerMinute, .restoreReservePercent,
            .supportReservePercent, .jobMaxAttempts, .jobBackoffBaseMs, .jobBackoffCapMs, .jobMaxAgeSeconds,
            .jobLeaseSeconds, .absenceMarginSeconds, .absenceMarginGooglePlaySeconds, .backgroundCheckDays,
            .demotionBrakePercent, .demotionBrakeMinimum, .workerConcurrency, .workerBatch, .oidcRoles,
            .supportContactURL, .appStoreRequestsPerMinute, .appStoreBaseURL, .appStoreSandboxBaseURL,
            .appStoreRootCertificates, .receiptRootCertificates, .googlePlayRequestsPerMinute, .googlePlayBaseURL,
            .googleOAuthBaseURL, .googlePlayAcknowledge, .googleKeysURL, .onsideRequestsPerMinute, .onsideBaseURL,
            .firebaseKeysURL, .firebaseBaseURL, .appTokenKeysURL, .appTokenUserClaim, .httpDatabaseWait,
            .httpAllowedOrigins, .messages,
            .eventRetentionDays, .historyRetentionDays, .requestsPerMinutePerAddress, .requestsPerMinutePerUser,
            .transferApprovals, .transferApprovalsRisky, .transferApprovalsOwnerErased, .transferOwnerHours,
            .transferCoolingDays, .transferEvidenceHours:
            .either
        }
    }
}
