// Generated from spec/defaults.yaml by `make generate`; do not edit.

/** Default limits of the service; times in milliseconds, sizes in bytes. */

/** Bytes of JSON-encoded data. */
export const maxPayload = 262144;
/** Per second. */
export const publishRateUser = 10;
export const publishRateService = 100;
export const connectionsPerUser = 100;
export const connectionsPerOrg = 10000;
/** Bytes. */
export const maxTopic = 255;
export const authDeadline = 5000;
export const presenceTimeout = 30000;
export const presenceGrace = 5000;
export const expiringNotice = 60000;
export const historyMaxMessages = 100;
/** Seconds. */
export const historyMaxAge = 3600;
export const historyPageDefault = 50;
export const historyPageMax = 500;
export const maxBatch = 1000;
export const maxSubscriptions = 1000;
export const serverPingInterval = 15000;
export const sseKeepalive = 15000;
