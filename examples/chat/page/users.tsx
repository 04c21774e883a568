/** Names of users: the name of this tab, and how names are shown. */

const NAMES = ['ana', 'ben', 'chen', 'dora', 'emil', 'fay', 'gus', 'hana'];

/** `?user=` in the address, or a name that the tab keeps across reloads. */
export function userOfThisTab(): string {
  const given = new URLSearchParams(location.search).get('user') ?? sessionStorage.getItem('user');
  const chosen = NAMES[Math.floor(Math.random() * NAMES.length)] ?? 'ana';
  const user = given && /^[a-z0-9-]{1,20}$/.test(given) ? given : chosen;
  sessionStorage.setItem('user', user);
  return user;
}

/** A name for a second tab. */
export const otherThan = (user: string): string => NAMES.find((name) => name !== user) ?? 'ben';

/** The class for the colour of a user. The names above and the scribe have different ones. */
export function toneOf(user: string): string {
  const hash = (sum: number, letter: string) => (sum * 20 + letter.charCodeAt(0)) % 9973;
  return `tone-${[...user].reduce(hash, 1) % 12}`;
}

export function Avatar({ user }: { readonly user: string }) {
  return (
    <span className={`avatar ${toneOf(user)}`} aria-hidden="true">
      {user.charAt(0).toUpperCase()}
    </span>
  );
}
