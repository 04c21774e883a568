/** What the sample of HIP-56 takes to be there. */

declare function appendToken(content: string): void;
declare function updatePresenceUI(members: readonly { readonly user_id: string }[]): void;
