/** Private keys in PEM (RFC 7468), and the algorithms they sign with. */

import { InvalidOption, Unsupported } from '../errors.js';

const RSA_BITS = 2048;

const SHA_256 = { hash: 'SHA-256' };

/** The kinds of keys that the server accepts, by the object identifier in the key. */
const KINDS = [
  { algorithm: 'EdDSA', id: '06032b6570', parameters: { name: 'Ed25519' } },
  {
    algorithm: 'ES256',
    id: '06082a8648ce3d030107',
    parameters: { name: 'ECDSA', namedCurve: 'P-256', ...SHA_256 },
  },
  {
    algorithm: 'RS256',
    id: '06092a864886f70d010101',
    parameters: { name: 'RSASSA-PKCS1-v1_5', ...SHA_256 },
  },
] as const;

/** A private key. */
export interface Key {
  readonly algorithm: 'EdDSA' | 'ES256' | 'RS256';
  sign(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array>;
  /** Its public part, without optional members. */
  publicJwk(): Promise<JsonWebKey>;
}

/**
 * Read a private key in PEM.
 *
 * @throws InvalidOption It cannot be read, or the server does not accept this kind of key.
 * @throws Unsupported The platform cannot use the key.
 */
export async function loadKey(pem: string): Promise<Key> {
  const bytes = readPem(pem);
  // The object identifiers are at the start, before the bytes of the key.
  const start = [...bytes.subarray(0, 40)]
    .map((byte) => byte.toString(16).padStart(2, '0'))
    .join('');
  const kind = KINDS.find(({ id }) => start.includes(id));
  if (!kind) throw unfit();
  const { algorithm, parameters } = kind;
  let key: CryptoKey;
  try {
    key = await crypto.subtle.importKey('pkcs8', bytes, parameters, true, ['sign']);
  } catch (error) {
    // Don't add the message of the platform: it may quote the key.
    const name = String(Object(error).name);
    throw /^(TypeError|ReferenceError|NotSupportedError)$/.test(name) ? unusable() : unreadable();
  }
  const { modulusLength = RSA_BITS } = key.algorithm as Partial<RsaKeyAlgorithm>;
  if (modulusLength < RSA_BITS) throw unfit();
  return {
    algorithm,
    sign: async (signed) => new Uint8Array(await crypto.subtle.sign(parameters, key, signed)),
    publicJwk: () => crypto.subtle.exportKey('jwk', key),
  };
}

function readPem(pem: string): Uint8Array<ArrayBuffer> {
  const found = /-----BEGIN PRIVATE KEY-----([A-Za-z0-9+/=\s]+)-----END PRIVATE KEY-----/.exec(pem);
  try {
    if (found?.[1]) return Uint8Array.from(atob(found[1]), (character) => character.charCodeAt(0));
  } catch {
    // It is not base64.
  }
  throw unreadable();
}

function unreadable(): InvalidOption {
  return invalid(
    'privateKey',
    '`privateKey` is not an unencrypted private key in PEM (PKCS #8).',
    'Pass the text of the PEM file. To convert a key: openssl pkcs8 -topk8 -nocrypt -in key.pem',
  );
}

/** A simulated browser lacks `crypto.subtle`, or has other classes for bytes than Web Crypto. */
function unusable(): Unsupported {
  return new Unsupported('The Web Crypto of this platform does not accept the key.', {
    remedy: 'Sign tokens in a backend. In Jest, use the environment `node` instead of `jsdom`.',
    field: 'privateKey',
  });
}

function unfit(): InvalidOption {
  return invalid(
    'privateKey',
    '`privateKey` has a type that the server does not accept.',
    'Use Ed25519, P-256, or RSA with 2,048 bits or more.',
  );
}

/** The error for an invalid option of a signer. */
export function invalid(field: string, message: string, remedy: string): InvalidOption {
  return new InvalidOption(message, { field, remedy });
}
