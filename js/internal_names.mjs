// Names of properties that only the client itself uses, and that the build shortens, as it does
// with names that begin with `_`. A name must not be in the API, in a frame, an answer, a message
// between tabs or the storage of a page. The client must not use a property of the platform with
// this name, and no module exports it.

/** The names. `exposedNames` finds those that must not be here. */
export const INTERNAL_NAMES = `
abandonFetch accepted acknowledged acks admit answered awaited based began beside burst byPattern callInterval
cancelTimer checkOpen checkTimeout context cursor cursors deliver deliveries dial disconnectedSince doubted doubts
drawn drop dropTopics due effects ended ending entry environment expire expiresIn fetchToken finished fired flush
follow full generation giveWay granted hangUp hasBatch hasRoom hasWebSocket healed heard held holders httpDerived
httpUrl inboxes incremental isPublish joined later learn lifecycle linked listeners lists lost marks matching moved
notify observed opened operate operations over ownPresence paced paceInterval part pause paused perform phase plain
ports presenceChanged probed problem protocolVersion proven publisher publishes put receive receiveQueueBytes
receiveQueueMessages reconnected recovery refs rememberOwn remove renew renewable report reported reportEnd requests
resends retried retryBase retryCap retryLater retryPending routes sendPolicy sendQueueBytes sendQueueMessages session
setPresence settleAll shown skips socketUrl startTimer stateChanged stopAll survivesDrop taken tick timed timerFired
timers tokenFailed tokenFailure tokenLife translate upgradeCap usesSeq wait wake watches welcomed whole withPresence
woke
`
  .trim()
  .split(/\s+/);

/** What the bundler shortens. */
export const SHORTENED = new RegExp(`^(?:_[^_].*|${INTERNAL_NAMES.join('|')})$`);

const COMMENT = /\/\*[\s\S]*?\*\/|(?<=^|\s)\/\/.*$/gm;
const MEMBER = /(?:^|[{;])\s*(?:(?:readonly|get|set|static|abstract) )*(\w+)\??[:(<]/gm;
const TEXT = /'((?:\\.|[^'\\\n])*)'|"((?:\\.|[^"\\\n])*)"/g;
const EXPORT = /^export (?:async )?(?:function|class|const|let) (\w+)/gm;
const SHAPE = /\bshape(?:<\w+>)?\(\s*((?:'[^']*'[\s+]*)+)/g;

/**
 * Names that must not be shortened: a member of a declaration, an export, a whole string, or a field
 * of a shape has this name.
 *
 * @param {readonly string[]} declarations Contents of the published declarations.
 * @param {readonly string[]} sources
 * @returns {string[]}
 */
export function exposedNames(declarations, sources) {
  const found = (texts, pattern) =>
    texts.flatMap((text) =>
      [...text.replace(COMMENT, '').matchAll(pattern)].map(([, a, b]) => a ?? b),
    );
  const fields = found(sources, SHAPE).flatMap((text) => text.match(/\w+/g));
  const exposed = new Set([
    ...found(declarations, MEMBER),
    ...found(sources, EXPORT),
    ...found(sources, TEXT),
    ...fields,
  ]);
  return INTERNAL_NAMES.filter((name) => exposed.has(name));
}
