/** What Node prints for an object of the SDK, for example with `console.log`. */

/** Prints a value, with the options of the running call. */
type Inspect = (value: unknown, options: object) => string;

/**
 * Let Node print only these public properties of the objects of a class.
 *
 * Their private members contain payloads, and have short names in the package. Call it only in the
 * development build, which Node always takes.
 */
export function showOnly<Shown extends object>(
  { name, prototype }: { readonly name: string; readonly prototype: Shown },
  ...properties: readonly (keyof Shown & string)[]
): void {
  Object.defineProperty(prototype, Symbol.for('nodejs.util.inspect.custom'), {
    value(this: Shown, _depth: number, options: object, inspect: Inspect): string {
      const shown = Object.fromEntries(properties.map((property) => [property, this[property]]));
      return `${name} ${inspect(shown, options)}`;
    },
  });
}
