/** fast-check with the seed of the whole test run, if there is one. */

import fc from 'fast-check';

const seed = process.env['HANZO_PUBSUB_TEST_SEED'];
// fast-check uses signed 32-bit seeds.
if (seed !== undefined) fc.configureGlobal({ seed: Number(seed) | 0 });

export { fc };
