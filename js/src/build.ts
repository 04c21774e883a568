/** The build of the package; `build.mjs` defines the constant. */

/**
 * Whether this is the build with all texts and option checks, and with the code that only sockets of
 * Node need. Bundlers take it during development, and platforms other than browsers always.
 *
 * The production build for browsers has codes, fields and the checks that protect: URL, token,
 * topic, payload.
 */
export const DEVELOPMENT: boolean = true;
