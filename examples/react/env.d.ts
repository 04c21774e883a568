/// <reference types="vite/client" />

interface ImportMetaEnv {
  /** URL of the server's WebSocket; default that of `hanzo-pubsub serve --dev`. */
  readonly VITE_PUBSUB_URL?: string;
}
