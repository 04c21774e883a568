/** The build of the package; `build.mjs` defines the constant. */

/**
 * Whether this is the build for the export conditions `development` and `node`, which has all texts
 * and option checks, and the code that only sockets of Node need.
 *
 * The production build for browsers has codes, fields and the checks that protect: URL, token,
 * topic, payload.
 */
export const DEVELOPMENT: boolean = true;
