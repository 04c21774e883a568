/** Which build of the package this is; `build.mjs` defines it where the package is built. */

/**
 * The build of the export conditions `development` and `node`: it has every word and option check.
 *
 * The production build for browsers has codes, fields and the checks that protect: URL, token,
 * topic, payload.
 */
export const DEVELOPMENT: boolean = true;
