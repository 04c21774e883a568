/** The version of the package, which the client sends to servers. */

declare const PACKAGE_VERSION: string | undefined;

/** Of `package.json`, put in by the build; `0` where the sources run without one. */
export const VERSION: string = typeof PACKAGE_VERSION === 'string' ? PACKAGE_VERSION : '0';
