import * as sdk from '@hanzoai/pubsub';
import { everyday } from './everyday.mjs';
import { readGiven } from './given.cjs';

process.stdout.write(JSON.stringify(await everyday(sdk, readGiven())));
