const sdk = require('@hanzoai/pubsub');
const { readGiven } = require('./given.cjs');

import('./everyday.mjs')
  .then(({ everyday }) => everyday(sdk, readGiven()))
  .then((told) => process.stdout.write(JSON.stringify(told)));
