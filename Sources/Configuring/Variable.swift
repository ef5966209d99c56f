/// The environment variables that are read, in the order in which faults are listed.
///
/// Each may instead be given as a file: `NAME_FILE` holds the path. Variables that are not listed are ignored.
package enum Variable: String, CaseIterable, Sendable {
    case appsDirectory = "APPS_DIR"
    case app = "ENTITLEMENT_SYNC_APP"
    case databaseURL = "DATABASE_URL"
    case databaseDirectURL = "DATABASE_DIRECT_URL"
    case consoleDatabaseURL = "CONSOLE_DATABASE_URL"
    case reportDatabaseURL = "REPORT_DATABASE_URL"
    case mode = "MODE"
    case sandbox = "SANDBOX"
    case storeApps = "STORE_APPS"
    case revenueCatAPIKey = "REVENUECAT_API_KEY"
    case revenueCatProjectID = "REVENUECAT_PROJECT_ID"
    case revenueCatBaseURL = "REVENUECAT_BASE_URL"
    case revenueCatRequestsPerMinute = "REVENUECAT_REQUESTS_PER_MINUTE"
    case restoreReservePercent = "RESTORE_RESERVE_PERCENT"
    case supportReservePercent = "SUPPORT_RESERVE_PERCENT"
    case jobMaxAttempts = "JOB_MAX_ATTEMPTS"
    case jobBackoffBaseMs = "JOB_BACKOFF_BASE_MS"
    case jobBackoffCapMs = "JOB_BACKOFF_CAP_MS"
    case jobMaxAgeSeconds = "JOB_MAX_AGE_SECONDS"
    case jobLeaseSeconds = "JOB_LEASE_SECONDS"
    case absenceMarginSeconds = "ABSENCE_MARGIN_SECONDS"
    case absenceMarginGooglePlaySeconds = "ABSENCE_MARGIN_GOOGLE_PLAY_SECONDS"
    case backgroundCheckDays = "BACKGROUND_CHECK_DAYS"
    case demotionBrakePercent = "DEMOTION_BRAKE_PERCENT"
    case demotionBrakeMinimum = "DEMOTION_BRAKE_MINIMUM"
    case workerConcurrency = "WORKER_CONCURRENCY"
    case workerBatch = "WORKER_BATCH"
    case httpHost = "HTTP_HOST"
    case httpPort = "HTTP_PORT"
    case adminHost = "ADMIN_HOST"
    case adminPort = "ADMIN_PORT"
    case adminNames = "ADMIN_NAMES"
    case consoleHost = "CONSOLE_HOST"
    case consolePort = "CONSOLE_PORT"
    case consoleURL = "CONSOLE_URL"
    case oidcIssuer = "OIDC_ISSUER"
    case oidcClientID = "OIDC_CLIENT_ID"
    case oidcClientSecret = "OIDC_CLIENT_SECRET"
    case oidcRoles = "OIDC_ROLES"
    case oidcScopes = "OIDC_SCOPES"
    case oidcGroupsClaim = "OIDC_GROUPS_CLAIM"
    case oidcSessionMinutes = "OIDC_SESSION_MINUTES"
    case supportContactURL = "SUPPORT_CONTACT_URL"
    case logLevel = "LOG_LEVEL"
    case logFormat = "LOG_FORMAT"
    case sqlDirectory = "ENTITLEMENT_SYNC_SQL_DIR"
    case accountIDKeys = "ACCOUNT_ID_KEYS"
    case accountIDNamespace = "ACCOUNT_ID_NAMESPACE"
    case appStoreIssuerID = "APP_STORE_ISSUER_ID"
    case appStoreKeyID = "APP_STORE_KEY_ID"
    case appStorePrivateKey = "APP_STORE_PRIVATE_KEY"
    case appStoreRequestsPerMinute = "APP_STORE_REQUESTS_PER_MINUTE"
    case appStoreBaseURL = "APP_STORE_BASE_URL"
    case appStoreSandboxBaseURL = "APP_STORE_SANDBOX_BASE_URL"
    case appStoreBundleID = "APP_STORE_BUNDLE_ID"
    case appStoreAppID = "APP_STORE_APP_ID"
    case appStoreRootCertificates = "APP_STORE_ROOT_CERTIFICATES"
    case receiptRootCertificates = "RECEIPT_ROOT_CERTIFICATES"
    case googlePlayServiceAccount = "GOOGLE_PLAY_SERVICE_ACCOUNT"
    case googlePlayPackageName = "GOOGLE_PLAY_PACKAGE_NAME"
    case googlePlayRequestsPerMinute = "GOOGLE_PLAY_REQUESTS_PER_MINUTE"
    case googlePlayBaseURL = "GOOGLE_PLAY_BASE_URL"
    case googleOAuthBaseURL = "GOOGLE_OAUTH_BASE_URL"
    case googlePlayAcknowledge = "GOOGLE_PLAY_ACKNOWLEDGE"
    case googleKeysURL = "GOOGLE_KEYS_URL"
    case onsideMerchantID = "ONSIDE_MERCHANT_ID"
    case onsideMerchantSecret = "ONSIDE_MERCHANT_SECRET"
    case onsideMerchantSecretEncoding = "ONSIDE_MERCHANT_SECRET_ENCODING"
    case onsideSecretKeyID = "ONSIDE_SECRET_KEY_ID"
    case onsideBundleID = "ONSIDE_BUNDLE_ID"
    case onsideRequestsPerMinute = "ONSIDE_REQUESTS_PER_MINUTE"
    case onsideBaseURL = "ONSIDE_BASE_URL"
    case firebaseProjectID = "FIREBASE_PROJECT_ID"
    case firebaseKeysURL = "FIREBASE_KEYS_URL"
    case firebaseServiceAccount = "FIREBASE_SERVICE_ACCOUNT"
    case firebaseBaseURL = "FIREBASE_BASE_URL"
    case appTokenIssuer = "APP_TOKEN_ISSUER"
    case appTokenAudience = "APP_TOKEN_AUDIENCE"
    case appTokenKeysURL = "APP_TOKEN_KEYS_URL"
    case appTokenUserClaim = "APP_TOKEN_USER_CLAIM"
    case revenueCatWebhookAuthorization = "REVENUECAT_WEBHOOK_AUTHORIZATION"
    case revenueCatWebhookSecret = "REVENUECAT_WEBHOOK_SECRET"
    case pubSubAudience = "PUBSUB_AUDIENCE"
    case pubSubServiceAccount = "PUBSUB_SERVICE_ACCOUNT"
    case httpTrustedProxies = "HTTP_TRUSTED_PROXIES"
    case httpAllowedOrigins = "HTTP_ALLOWED_ORIGINS"
    case httpMaxConnections = "HTTP_MAX_CONNECTIONS"
    case httpMaxConnectionsPerAddress = "HTTP_MAX_CONNECTIONS_PER_ADDRESS"
    case httpDatabaseWait = "HTTP_DATABASE_WAIT_SECONDS"
    case messages = "MESSAGES"
    case outboxURL = "OUTBOX_URL"
    case outboxSecret = "OUTBOX_SECRET"
    case eventRetentionDays = "EVENT_RETENTION_DAYS"
    case historyRetentionDays = "HISTORY_RETENTION_DAYS"
    case requestsPerMinutePerAddress = "HTTP_REQUESTS_PER_MINUTE_PER_ADDRESS"
    case requestsPerMinutePerUser = "HTTP_REQUESTS_PER_MINUTE_PER_USER"
    case revenueCatTransferAPIKey = "REVENUECAT_TRANSFER_API_KEY"
    case transferApprovals = "TRANSFER_APPROVALS"
    case transferApprovalsRisky = "TRANSFER_APPROVALS_RISKY"
    case transferApprovalsOwnerErased = "TRANSFER_APPROVALS_OWNER_ERASED"
    case transferOwnerHours = "TRANSFER_OWNER_HOURS"
    case transferCoolingDays = "TRANSFER_COOLING_DAYS"
    case transferEvidenceHours = "TRANSFER_EVIDENCE_HOURS"

    /// The variable that names a file to read the value from.
    package var fileVariable: String { rawValue + "_FILE" }

    /// The largest file that the value is read from, in bytes.
    var longestFile: Int { self == .storeApps ? StoreAppsFile.limit : ValueFile.limit }

    /// Whether the value has lines, as keys in files do.
    package var hasLines: Bool {
        switch self {
        case .appStorePrivateKey, .googlePlayServiceAccount, .firebaseServiceAccount, .messages, .storeApps: true
        default: false
        }
    }

    /// Whether the value must never be shown.
    ///
    /// Connection strings carry passwords.
    package var isSecret: Bool {
        switch self {
        case .databaseURL, .databaseDirectURL, .consoleDatabaseURL, .reportDatabaseURL, .storeApps, .revenueCatAPIKey,
            .accountIDKeys, .appStorePrivateKey,
            .googlePlayServiceAccount, .firebaseServiceAccount, .onsideMerchantSecret, .revenueCatWebhookAuthorization,
            .revenueCatWebhookSecret, .outboxSecret, .revenueCatTransferAPIKey, .oidcClientSecret:
            true
        default: false
        }
    }
}
