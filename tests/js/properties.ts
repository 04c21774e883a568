/** fast-check, with the seed of the whole run where there is one. */

import fc from 'fast-check';

const seed = process.env['HANZO_PUBSUB_TEST_SEED'];
// fast-check takes 32 bits with a sign.
if (seed !== undefined) fc.configureGlobal({ seed: Number(seed) | 0 });

export { fc };
