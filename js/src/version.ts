/** The version of the package, which the client sends to servers. */

declare const PACKAGE_VERSION: string | undefined;

/**
 * The version in `package.json`, which the build inserts; `0` if the sources run without a build.
 */
export const VERSION: string = typeof PACKAGE_VERSION === 'string' ? PACKAGE_VERSION : '0';
