/** A server accepts the tokens of a backend with the published keys. */

import assert from 'node:assert/strict';
import { createPublicKey, generateKeyPairSync, type KeyObject, verify } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { inspect } from 'node:util';

import { AuthError, InvalidOption, PermissionDenied, Unsupported } from '../../../js/src/index.js';
import { TokenSigner } from '../../../js/src/tokens/index.js';
import { Server } from './server.js';

const pem = ({ privateKey, publicKey }: { privateKey: KeyObject; publicKey: KeyObject }) => ({
  privateKey: String(privateKey.export({ type: 'pkcs8', format: 'pem' })),
  publicKey,
});
const KEYS = {
  EdDSA: pem(generateKeyPairSync('ed25519')),
  ES256: pem(generateKeyPairSync('ec', { namedCurve: 'P-256' })),
  RS256: pem(generateKeyPairSync('rsa', { modulusLength: 2048 })),
};
const ISSUER = 'https://app.example';

const read = (part: string | undefined): Record<string, unknown> =>
  JSON.parse(Buffer.from(part ?? '', 'base64url').toString());

test('a token of each kind of key has a genuine signature', async () => {
  for (const [algorithm, pair] of Object.entries(KEYS)) {
    const signer = await TokenSigner.create(pair.privateKey, { keyId: 'k1' });
    assert.equal(signer.algorithm, algorithm);
    const [header, claims, signature] = (await signer.sign('alice')).value.split('.');
    assert.deepEqual(read(header), { alg: algorithm, typ: 'JWT', kid: 'k1' });
    const genuine = verify(
      algorithm === 'EdDSA' ? null : 'sha256',
      Buffer.from(`${header}.${claims}`),
      { key: pair.publicKey, dsaEncoding: 'ieee-p1363' },
      Buffer.from(signature ?? '', 'base64url'),
    );
    assert.ok(genuine, algorithm);
  }
});

test('a token has the claims that were named and no empty ones', async () => {
  const signer = await TokenSigner.create(KEYS.EdDSA.privateKey, {
    keyId: 'k1',
    audience: ['a', 'b'],
  });
  const before = Date.now();
  const token = await signer.sign('alice', {
    ttl: 60_000,
    orgs: ['acme'],
    name: 'Alice',
    agents: [],
    sessionsOwned: ['s1'],
    extra: { plan: 'pro' },
  });
  const { iat, exp, jti, ...claims } = read(token.value.split('.')[1]);
  assert.deepEqual(claims, {
    aud: ['a', 'b'],
    sub: 'alice',
    kind: 'user',
    name: 'Alice',
    orgs: ['acme'],
    sessions_owned: ['s1'],
    plan: 'pro',
  });
  assert.equal(Number(exp) * 1000, token.expiresAt);
  assert.ok(token.expiresAt >= before + 60_000 && token.expiresAt <= Date.now() + 60_000);
  assert.ok(Number(iat) <= Number(exp) && typeof jti === 'string');
});

test('the key set contains only the public keys of all signers', async () => {
  const [first, ...others] = await Promise.all(
    Object.entries(KEYS).map(([keyId, { privateKey }]) =>
      TokenSigner.create(privateKey, { keyId }),
    ),
  );
  const { keys } = (await first?.jwks(...others)) ?? { keys: [] };
  assert.deepEqual(
    keys.map(({ kid, alg, use }) => [kid, alg, use]),
    Object.keys(KEYS).map((name) => [name, name, 'sig']),
  );
  for (const key of keys) {
    const known = ['alg', 'crv', 'e', 'kid', 'kty', 'n', 'use', 'x', 'y'];
    assert.ok(Object.keys(key).every((name) => known.includes(name)));
    assert.ok(createPublicKey({ key: { ...key }, format: 'jwk' }));
  }
});

test('a server accepts a signed token by the published key, and no other', async () => {
  const signer = await TokenSigner.create(KEYS.ES256.privateKey, { keyId: 'k', issuer: ISSUER });
  const stranger = await TokenSigner.create(KEYS.RS256.privateKey, { keyId: 'k', issuer: ISSUER });
  const jwks = JSON.stringify(await signer.jwks());
  const backend = createServer((_, response) => response.end(jwks));
  await new Promise<void>((resolve) => backend.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(backend.address() as AddressInfo).port}/jwks.json`;
  const server = await Server.start(
    ...['--no-dev', '--behind-tls-proxy', '--iam-jwks-url', url, '--jwt-issuer', ISSUER],
  );
  try {
    const ps = server.client({ getToken: () => signer.sign('alice') });
    await ps.subscribe('user.alice.inbox');
    await assert.rejects(ps.subscribe('user.bob.inbox'), PermissionDenied);
    const eve = server.client({ token: (await stranger.sign('eve')).value });
    await assert.rejects(eve.connect(), AuthError);
  } finally {
    await server.stop();
    backend.close();
  }
});

test('a key that no server accepts is refused without showing it', async () => {
  const small = pem(generateKeyPairSync('rsa', { modulusLength: 1024 })).privateKey;
  const other = pem(generateKeyPairSync('ec', { namedCurve: 'P-384' })).privateKey;
  for (const text of ['', 'no key', small, other, KEYS.EdDSA.privateKey.slice(0, 60)]) {
    await assert.rejects(TokenSigner.create(text, { keyId: 'k' }), (error: unknown) => {
      assert.ok(error instanceof InvalidOption && error.field === 'privateKey');
      return !text || !String(error).includes(text);
    });
  }
});

test('a platform that cannot use a valid key is not mistaken for an unreadable key', async (t) => {
  for (const subtle of [
    undefined,
    { importKey: () => Promise.reject(new TypeError('The bytes are of another realm.')) },
    { importKey: () => Promise.reject(new DOMException('No Ed25519.', 'NotSupportedError')) },
  ]) {
    const platform = t.mock.getter(globalThis, 'crypto', () => ({ subtle }) as unknown as Crypto);
    const made = TokenSigner.create(KEYS.EdDSA.privateKey, { keyId: 'k1' });
    await assert.rejects(made, (error) => {
      assert.ok(error instanceof Unsupported);
      assert.equal(error.field, 'privateKey');
      assert.doesNotMatch(error.message, /PEM/);
      return true;
    });
    platform.mock.restore();
  }
});

test('wrong arguments are named', async () => {
  const { privateKey } = KEYS.EdDSA;
  await assert.rejects(TokenSigner.create(privateKey, { keyId: '' }), { field: 'keyId' });
  const signer = await TokenSigner.create(privateKey, { keyId: 'k' });
  for (const [field, user, options] of [
    ['user', '', {}],
    ['user', 'x'.repeat(129), {}],
    ['ttl', 'alice', { ttl: 0 }],
    ['ttl', 'alice', { ttl: 367 * 86_400_000 }],
    ['ttl', 'alice', { ttl: '60000' as unknown as number }],
    ['orgs', 'alice', { orgs: 'acme' as unknown as string[] }],
    ['agents', 'alice', { agents: [7] as unknown as string[] }],
    ['sessionsOwned', 'alice', { sessionsOwned: new Set(['s1']) as unknown as string[] }],
    ['name', 'alice', { name: 7 as unknown as string }],
    ['avatarUrl', 'alice', { avatarUrl: 7 as unknown as string }],
    ['extra', 'alice', { extra: { sub: 'bob' } }],
    ['extra', 'alice', { extra: null as unknown as Record<string, unknown> }],
    ['extra', 'alice', { extra: [1] as unknown as Record<string, unknown> }],
    ['extra', 'alice', { extra: { when: new Date() } }],
    ['bulk', 'alice', { bulk: 'no' as unknown as boolean }],
    ['kind', 'alice', { kind: 'root' as 'user' }],
    ['orgz', 'alice', { orgz: [] } as object],
  ] as const) {
    await assert.rejects(signer.sign(user, options), { name: 'InvalidOption', field });
  }
});

test('an issuer or audience that no server accepts is named', async () => {
  for (const [options, words] of [
    [{ issuer: 5 }, /`issuer` is a number, not a string/],
    [{ issuer: null }, /`issuer` is null, not a string/],
    [{ issuer: '' }, /`issuer` is empty/],
    [{ audience: 5 }, /`audience` is a number, not a string/],
    [{ audience: [5] }, /`audience` contains a number, not a string/],
    [{ audience: ['a', undefined] }, /`audience` contains undefined/],
    [{ audience: [] }, /`audience` is empty/],
    [{ audience: ['a', ''] }, /`audience` is empty/],
  ] as const) {
    const [field] = Object.keys(options) as ['issuer' | 'audience'];
    const creating = TokenSigner.create(KEYS.EdDSA.privateKey, {
      keyId: 'k',
      ...(options as object),
    });
    await assert.rejects(creating, (error) => {
      assert.ok(error instanceof InvalidOption);
      assert.equal(error.field, field);
      assert.match(error.message, words);
      assert.ok(error.remedy.includes(`\`jwt_${field}\``));
      return true;
    });
  }
});

test('a token that clients reject is refused with the longest option', async () => {
  const signer = await TokenSigner.create(KEYS.ES256.privateKey, { keyId: 'k' });
  const sessionsOwned = Array.from({ length: 20_000 }, (_, index) => `session-${index}`);
  for (const options of [{ sessionsOwned }, { sessionsOwned: sessionsOwned.slice(0, 1_000) }])
    await assert.rejects(
      signer.sign('alice', { orgs: ['acme'], ...options }),
      (error: InvalidOption) => {
        assert.equal(error.field, 'sessionsOwned');
        assert.match(
          error.message,
          /^The token has [0-9,]+ characters, more than 16,384; the longest/,
        );
        return true;
      },
    );
  const { value } = await signer.sign('alice', { sessionsOwned: sessionsOwned.slice(0, 600) });
  assert.ok(value.length > 10_000);
});

test('a claim that is not JSON is named with its place', async () => {
  const signer = await TokenSigner.create(KEYS.EdDSA.privateKey, { keyId: 'k' });
  const signing = signer.sign('alice', { extra: { limits: [1, Number.NaN], absent: undefined } });
  await assert.rejects(signing, (error) => {
    assert.ok(error instanceof InvalidOption);
    assert.equal(error.field, 'extra');
    assert.match(error.message, /`extra\.limits\[1\]` is NaN/);
    return error.remedy.length > 0;
  });
});

test('no inspector shows the private key', async () => {
  const signer = await TokenSigner.create(KEYS.EdDSA.privateKey, { keyId: 'k1' });
  assert.ok(!inspect(signer, { depth: 9 }).includes('private'));
  assert.deepEqual(Object.keys({ ...signer }).sort(), ['_common', 'keyId']);
});
