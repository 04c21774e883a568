/** The version of the package, as it tells servers. */

export const VERSION = '0.1.0';
