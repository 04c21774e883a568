/** Declarations that the sample of HIP-56 assumes. */

declare function appendToken(content: string): void;
declare function updatePresenceUI(members: readonly { readonly user_id: string }[]): void;
