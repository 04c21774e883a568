/** Detects a prerendered page, which the browser loads before the user opens it. */

/** The used part of a browser's document. */
interface Page {
  readonly prerendering?: boolean;
  addEventListener(type: string, listener: (event: unknown) => void): void;
}

/** Resolves when the user opens the page. Falsy if the page is open, or if there is no page. */
export function untilOpened(): Promise<unknown> | false | undefined {
  const { document } = globalThis as { document?: Page };
  return (
    document?.prerendering &&
    new Promise((resolve) => document.addEventListener('prerenderingchange', resolve))
  );
}
