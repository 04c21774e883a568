/** The page of the demonstration: it follows a stream while connections fail and tokens expire. */

import { type Message, PubSub, type StateChange } from '@hanzoai/pubsub';
import { readStream } from '@hanzoai/pubsub/streams';

import { disturb, enter, progress, token } from './backstage.js';
import { Ledger } from './ledger.js';
import { byId, drawPeople, Figures, Happenings, TokenRing } from './panels.js';
import { Rotations } from './rotations.js';
import { TextView } from './text_view.js';
import { Track } from './track.js';

/** Every user may publish on this topic of a development server; only the service writes the text. */
const TALK = 'demo.talk';

/** Failed requests in a row after which the demonstration is gone. */
const REQUESTS_FAILED = 40;

const began = Date.now();
const show = await enter();
const ledger = new Ledger();
const text = new TextView(byId('text'));
const track = new Track(byId('track'), began);
const ring = new TokenRing(byId('token').querySelector('.left') as SVGElement, byId('token-left'));
const happenings = new Happenings(byId('happenings'), began);
// The keyboard scrolls both.
for (const id of ['text', 'happenings']) byId(id).tabIndex = 0;
const figures = new Figures(byId('figures'), [
  'Published',
  'Received here',
  'Lost',
  'Twice',
  'Reconnects',
  'Rotations',
  'Publish → page',
]);
figures.set('Publish → page', '–');
let published = 0;
let reconnects = 0;
const rotations = new Rotations();
let wasConnected = false;
/** Number of words published when the connection was back: those before are replayed. */
let publishedThen = 0;
let replayed = 0;
let finished = false;

const ps = new PubSub({
  url: show.ws,
  restUrl: show.http,
  name: 'demo-page',
  // So many cuts would make it fall back to server-sent events, where presence is not updated.
  transport: 'websocket',
  retry: { base: 500 },
  getToken: async ({ reason }) => {
    const next = await token(show.user);
    if (rotations.fetched(reason, next.expiresAt)) {
      track.rotated(Date.now());
      happenings.add('rotated', `a new token at word ${ledger.received.toLocaleString('en')}`);
    }
    ring.renewed(next.expiresAt);
    return next;
  },
});

ps.on('state', ({ from, to }: StateChange) => {
  const state = byId('state');
  byId('text').dataset['state'] = state.dataset['state'] = to;
  (state.lastElementChild as HTMLElement).textContent = to;
  if (to === 'connected') {
    if (wasConnected) {
      reconnects += 1;
      void expectReplay();
      track.back(Date.now());
      happenings.add('back', 'connected again');
    }
    wasConnected = true;
  } else if (from === 'connected' && (to === 'reconnecting' || to === 'suspended')) {
    track.cut(Date.now());
    if (!finished) text.cut();
    happenings.add('cut', `cut at word ${ledger.received.toLocaleString('en')}`);
  }
});

/** Measure a message's latency here: events of a stream reader have no timestamp. */
function measure({ type, timestamp }: Message): void {
  const now = Date.now();
  if (type !== 'token') return;
  // The age of a message that is older than the page is not a latency.
  if (timestamp < began) return;
  const late = Math.max(0, now - timestamp);
  ledger.late(late);
  track.late(now, late);
}

/** `1 word`, `2,000 words`. */
function plural(count: number, one: string): string {
  return `${count.toLocaleString('en')} ${one}${count === 1 ? '' : 's'}`;
}

/** Show words, and mark those that were published while the connection was cut. */
function write(words: readonly string[]): void {
  if (words.length) document.getElementById('soon')?.remove();
  let index = ledger.received - words.length;
  for (const word of words) {
    const isReplayed = index++ < publishedThen;
    text.word(word, isReplayed);
    if (isReplayed) replayed += 1;
  }
  if (ledger.received >= publishedThen) endReplay();
}

/** Mark all words until it is known how many were published. */
async function expectReplay(): Promise<void> {
  publishedThen = Number.POSITIVE_INFINITY;
  publishedThen = await progress().then(
    (now) => now.published,
    () => ledger.received,
  );
  if (ledger.received >= publishedThen) endReplay();
}

function endReplay(): void {
  if (replayed) happenings.add('back', `${plural(replayed, 'word')} replayed`);
  replayed = 0;
}

async function conclude(): Promise<void> {
  finished = true;
  endReplay();
  const words = show.total;
  ledger.total = published = words;
  track.end(Date.now());
  byId('text').dataset['done'] = '';
  drawFigures();
  const verdict = byId('verdict');
  const count = plural(words, 'word');
  verdict.textContent = ledger.whole
    ? `All ${count}, in order: none lost, none twice, through ${plural(reconnects, 'reconnect')} and ${plural(rotations.count, 'token rotation')}.`
    : `Of ${count}: lost ${ledger.lost}, twice ${ledger.twice}, altered ${ledger.altered}.`;
  verdict.classList.toggle('wrong', !ledger.whole);
  verdict.hidden = false;
  document.documentElement.dataset['verdict'] = ledger.whole ? 'whole' : 'wrong';
  happenings.add('stream', 'the end of the text');
  if (!show.stays) await ps.close();
}

function draw(): void {
  text.draw();
  requestAnimationFrame(draw);
}

function drawFigures(): void {
  published = Math.max(published, ledger.received);
  track.draw(Date.now());
  ring.draw();
  const behind = published - ledger.received;
  figures.set('Published', published, `/ ${show.total.toLocaleString('en')}`);
  figures.set('Received here', ledger.received, behind > 3 ? `${behind} behind` : '');
  const gaps = ledger.gaps ? `${ledger.gaps} gaps repaired` : '';
  figures.set('Lost', ledger.lost, gaps, ledger.lost ? 'wrong' : 'fine');
  figures.set('Twice', ledger.twice, '', ledger.twice ? 'wrong' : 'fine');
  figures.set('Reconnects', reconnects);
  figures.set('Rotations', rotations.count);
  const [usual, slow] = [ledger.percentile(0.5), ledger.percentile(0.99)];
  if (usual !== undefined) figures.set('Publish → page', `${usual} ms`, `p99 ${slow}`);
  byId('progress').style.width = `${(100 * ledger.received) / show.total}%`;
}

/** Ask for the number of published words until the text ends, or the demonstration is gone. */
async function watch(): Promise<void> {
  for (let failures = 0; !finished && failures < REQUESTS_FAILED; ) {
    try {
      published = Math.max(published, (await progress()).published);
      failures = 0;
    } catch {
      failures += 1;
    }
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}

// -------------------------------------------------------------------- the user of this page

let status = 'watching';
async function appear(next: string): Promise<void> {
  if (next === status) return;
  status = next;
  await ps.updatePresence(show.topic, { status });
}
const words = byId<HTMLInputElement>('words');
words.addEventListener('input', () => void appear(words.value ? 'typing' : 'watching'));
byId('say').addEventListener('submit', async (event) => {
  event.preventDefault();
  const note = words.value.trim();
  words.value = '';
  try {
    if (note) await ps.publish(TALK, { type: 'note', data: { text: note } });
    await appear('watching');
  } catch (error) {
    happenings.add('loss', String(error));
  }
});
byId('cut').addEventListener('click', () => disturb('cut', show.user));
byId('renew').addEventListener('click', () => disturb('renew', show.user));
const link = byId<HTMLAnchorElement>('to-console');
link.href = `${show.http}/`;
link.hidden = false;

requestAnimationFrame(draw);
setInterval(drawFigures, 100);
void watch();
await ps.subscribe(show.topic, {
  onMessage: measure,
  onPresence: (members, { change, member }) => {
    byId('present').textContent = String(new Set(members.map(({ user_id }) => user_id)).size);
    drawPeople(byId('people'), members, show.user);
    if (change === 'join' || change === 'leave') {
      happenings.add(
        'people',
        `${member?.name ?? member?.user_id} ${change === 'join' ? 'joined' : 'left'}`,
      );
    }
  },
  // The reader of the stream reports and repairs what is missing.
  onGap: () => {},
});
await ps.subscribe(TALK, {
  onMessage: ({ sender, data }) => {
    happenings.add('said', `${sender?.id ?? 'a user'}: ${data.text}`);
  },
});
await ps.updatePresence(show.topic, { status });
for await (const event of readStream(ps, show.topic, { id: show.stream })) {
  if (event.kind === 'delta') write(ledger.grow(event.text));
  else if (event.kind === 'snapshot') write(ledger.replace(event.text));
  else if (event.kind === 'gap') {
    ledger.gaps += 1;
    happenings.add('loss', 'tokens are missing until the next snapshot');
  } else if (event.kind === 'done') {
    write(ledger.replace(event.text));
    await conclude();
  }
}
