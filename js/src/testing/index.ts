/** For tests of programs: a server in memory, a clock that the test moves, and faults. */

export { type Clock, SystemClock, type TimerHandle } from '../clock.js';
export { VirtualClock } from './clock.js';
export type { Stats } from './core.js';
export { type Fault, MemoryServer, type MemoryServerOptions } from './server.js';
export type { Rules, ServerSettings } from './settings.js';
export type { Identity, Kind, TokenClaims } from './tokens.js';
