/** Warnings and checks of the development build, which it loads when they are needed. */

export { checkAnswer } from './answers.js';
export { warnOfSeconds } from './units.js';
