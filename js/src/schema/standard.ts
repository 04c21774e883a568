/**
 * Standard Schema: what zod, valibot, arktype and others have in common.
 *
 * The part of `@standard-schema/spec` (version 1) that this package uses, so that it depends on
 * nothing: https://standardschema.dev.
 */

/** A schema of any library that implements Standard Schema. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** What `validate` gives: the value, or what is wrong with it. */
export type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] };

/** One thing that is wrong with a value. */
export interface StandardIssue {
  /** In the words of the library; it may contain the value. */
  readonly message: string;
  /** Where it is; absent for the value as a whole. */
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** What a schema accepts: the payload as it is on the wire. */
export type InputOf<Schema extends StandardSchema> = NonNullable<
  Schema['~standard']['types']
>['input'];

/** What a schema makes of it. */
export type OutputOf<Schema extends StandardSchema> = NonNullable<
  Schema['~standard']['types']
>['output'];
