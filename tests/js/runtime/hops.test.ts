/** The functions of this package that a received message and a publish pass, by name. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { Session as Inspector } from 'node:inspector/promises';
import { join } from 'node:path';
import { test } from 'node:test';

import { turns, virtualClient } from './virtual.js';

/**
 * The functions that `docs/inside/call-paths.md` lists under a heading, as `file: function`: the path,
 * and its helpers.
 */
function listed(heading: string): { readonly way: string[]; readonly helpers: string[] } {
  const page = readFileSync(join(process.cwd(), 'docs', 'inside', 'call-paths.md'), 'utf8');
  const [, section = ''] = page.split(`\n### ${heading}\n`);
  const [body = ''] = section.split('\n#');
  const way = [...body.matchAll(/^\| \d+ \| `([^`]+)` \| `([^`]+)` \|/gm)];
  const [, beside = ''] = body.split('Helpers: ');
  return {
    way: way.map(([, name, file]) => `${file}: ${name}`),
    helpers: [...beside.matchAll(/`([^`]+)`/g)].map(([, helper = '']) => helper),
  };
}

/** The functions of js/src/ that run during the call, as `file: function`. */
async function traced(act: () => Promise<unknown>): Promise<string[]> {
  const inspector = new Inspector();
  inspector.connect();
  await inspector.post('Profiler.enable');
  await inspector.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  await inspector.post('Profiler.takePreciseCoverage');
  await act();
  const { result } = await inspector.post('Profiler.takePreciseCoverage');
  inspector.disconnect();
  return result.flatMap(({ url, functions }) => {
    const [, file] = /\/js\/src\/(.+)\.js$/.exec(url) ?? [];
    return functions
      .filter(({ functionName, ranges }) => file && functionName && ranges[0]?.count)
      .map(({ functionName }) => `${file}.ts: ${functionName}`);
  });
}

/** Check that only the listed path and its helpers ran, and that each step of the path ran. */
function compare(ran: readonly string[], heading: string, most: number): void {
  const { way, helpers } = listed(heading);
  const nameOf = (one: string): string => one.replace(/.*: (?:get )?/, '');
  const others = ran.filter((one) => !way.includes(one) && !helpers.includes(nameOf(one)));
  assert.deepEqual(
    way.filter((one) => !ran.includes(one)),
    [],
    'listed, and did not run',
  );
  assert.deepEqual(others, [], 'ran, and is not listed');
  assert.ok(way.length && way.length <= most, `${way.length} functions`);
}

test('a received message passes the functions that the call paths list', async () => {
  const { ps, peer } = virtualClient();
  const sub = await ps.subscribe('a.b');
  const messages = sub[Symbol.asyncIterator]();
  for (const data of [1, 2]) {
    peer.socket.receive(peer.message('a.b', data));
    await messages.next();
  }
  await turns();
  const ran = await traced(async () => {
    const next = messages.next();
    peer.socket.receive(peer.message('a.b', 3));
    await next;
  });
  compare(ran, 'A received message in TypeScript', 11);
  await ps.close();
});

test('a publish passes the functions that the call paths list', async () => {
  const { ps, peer } = virtualClient();
  await ps.publish('a.b', { type: 'x', data: 1 });
  await turns();
  const { socket } = peer;
  const sent = socket.frames('publish').length;
  peer.silent.add('publish');
  let published: Promise<unknown> | undefined;
  const ran = await traced(async () => {
    published = ps.publish('a.b', { type: 'x', data: 2 });
    assert.equal(socket.frames('publish').length, sent + 1);
  });
  compare(ran, 'A publish in TypeScript', 15);
  await Promise.all([assert.rejects(async () => published), ps.close({ timeout: 0 })]);
});
