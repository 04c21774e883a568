/** Warnings and checks of the development build, which it loads when they are needed. */

export { checkExpiry } from './expiry.js';
export { warnOfSeconds } from './units.js';
