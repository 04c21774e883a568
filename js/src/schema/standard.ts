/**
 * Standard Schema, the common interface of zod, valibot, arktype and others.
 *
 * This is the part of `@standard-schema/spec` (version 1) that the package uses, to avoid a
 * dependency: https://standardschema.dev.
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

/** The result of `validate`: the value, or its problems. */
export type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] };

/** A problem of a value. */
export interface StandardIssue {
  /** The text of the library; it may contain the value. */
  readonly message: string;
  /** Its path; absent for the whole value. */
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** The input of a schema: the payload on the wire. */
export type InputOf<Schema extends StandardSchema> = NonNullable<
  Schema['~standard']['types']
>['input'];

/** The output of a schema. */
export type OutputOf<Schema extends StandardSchema> = NonNullable<
  Schema['~standard']['types']
>['output'];
