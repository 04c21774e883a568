// Leaves words for people out of the production build: remedies, the messages of errors about
// arguments, and those of what the client itself gives up; reasons of a code or a state. Of such an
// error remain its class, its code, its field, and the link to its page.
// Warnings, and messages and reasons that carry a value of the connection stay.

const STRING = String.raw`(?:'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*")`;
const TEMPLATE = '`(?:\\\\.|\\$\\{(?:[^`{}]|`[^`]*`|\\{[^{}]*\\})*\\}|[^`\\\\])*`';
const TEXT = `(?:${STRING}|${TEMPLATE})`;

const REMEDY = new RegExp(`\\bremedy: ${TEXT}(?=[,\\s])`, 'g');
const ABOUT_ARGUMENTS = new RegExp(
  `\\bnew (Invalid(?:Option|Payload|Topic)|InsecureUrl|UsageError)\\(\\s*${TEXT}(?=[,)])`,
  'g',
);
const CONSTANT = new RegExp(
  `\\bnew (ConnectionFailed|ProtocolError|SlowConsumer|ClosedError)\\(\\s*${STRING}(?=[,)])`,
  'g',
);
const CHECK = new RegExp(
  `\\b(invalid|missing|culprit)\\(\\s*([\\w.']+),\\s*${TEXT}(?:,\\s*${TEXT})?,?\\s*\\)`,
  'g',
);

const MESSAGE = new RegExp(`\\bmessage: ${STRING}(?=[,\\s])`, 'g');
const REASON = /(?<!\bcode: undefined,\s+)\breason: '[^'\n]*\.'(?=[,\s])/g;
const GIVEN_UP = new RegExp(`(\\b_giveUp\\(\\s*\\w+,\\s*'\\w+',\\s*)${TEXT}(?=[,)\\s])`, 'g');

/**
 * TypeScript without those words; its lines stay where they are, for source maps.
 *
 * @param {string} source
 * @returns {string}
 */
export function withoutWords(source) {
  const lines = (text) => text.replace(/[^\n]+/g, '');
  return source
    .replace(REMEDY, (all) => `remedy: undefined${lines(all)}`)
    .replace(ABOUT_ARGUMENTS, (all, name) => `new ${name}(undefined${lines(all)}`)
    .replace(CONSTANT, (all, name) => `new ${name}(undefined${lines(all)}`)
    .replace(MESSAGE, (all) => `message: ''${lines(all)}`)
    .replace(REASON, (all) => `reason: ''${lines(all)}`)
    .replace(GIVEN_UP, (all, call) => `${call}''${lines(all.slice(call.length))}`)
    .replace(CHECK, (all, call, field) => `${call}(${field}, ''${lines(all)})`);
}
