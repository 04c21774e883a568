// Removes texts for people from the production build: remedies, messages of errors about arguments
// and of errors that the client itself raises, and reasons of ends that are not failures. Class,
// code, field and documentation link of such an error remain. Warnings remain, and so do messages
// and reasons that contain a value of the connection.

const STRING = String.raw`(?:'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*")`;
const TEMPLATE = '`(?:\\\\.|\\$\\{(?:[^`{}]|`[^`]*`|\\{[^{}]*\\})*\\}|[^`\\\\])*`';
const TEXT = `(?:${STRING}|${TEMPLATE})`;

const REMEDY = new RegExp(`\\bremedy:\\s+${TEXT}(?:,|(?=\\s))`, 'g');
const ABOUT_ARGUMENTS = new RegExp(
  `\\bnew (Invalid(?:Option|Payload|Topic)|PayloadTooLarge|InsecureUrl|UsageError)\\(\\s*${TEXT}(?=[,)])`,
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

// An empty text is the default of a field, not a text for people.
const ENTRY = new RegExp(`(\\{(?: code: '\\w+',)?) message: (?!'')${STRING} \\}(?=,$)`, 'gm');
const MESSAGE = new RegExp(`\\bmessage:\\s+${STRING}(?=[,\\s])`, 'g');
const REASON = /\breason: '[^'\n]*\.'(?=,\s+again: true)/g;
const WITHOUT_TEXT = /(\bnew \w+\()undefined(?:,\s*\{\s*\})?,?\s*\)/g;
const GIVEN_UP = new RegExp(`(\\b_giveUp\\(\\s*\\w+,\\s*'\\w+',\\s*)${TEXT}(?=[,)\\s])`, 'g');

/**
 * Return TypeScript without these texts. Line numbers don't change, for source maps.
 *
 * @param {string} source
 * @returns {string}
 */
export function withoutWords(source) {
  const lines = (text) => text.replace(/[^\n]+/g, '');
  return source
    .replace(REMEDY, lines)
    .replace(ABOUT_ARGUMENTS, (all, name) => `new ${name}(undefined${lines(all)}`)
    .replace(CONSTANT, (all, name) => `new ${name}(undefined${lines(all)}`)
    .replace(WITHOUT_TEXT, (all, call) => `${call}${lines(all)})`)
    .replace(ENTRY, '$1 }')
    .replace(MESSAGE, (all) => `message: ''${lines(all)}`)
    .replace(REASON, (all) => `reason: ''${lines(all)}`)
    .replace(GIVEN_UP, (all, call) => `${call}''${lines(all.slice(call.length))}`)
    .replace(CHECK, (all, call, field) => `${call}(${field}${lines(all)})`);
}
