/// <reference types="vite/client" />

interface ImportMetaEnv {
  /** Where the WebSocket of the server is; default that of `hanzo-pubsub serve --dev`. */
  readonly VITE_PUBSUB_URL?: string;
}
