/** Serves the page with a token endpoint; `hanzo-pubsub serve --dev` issues the tokens. */

import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { defineConfig, type Plugin } from 'vite';

/** Use the package of a checkout if there is one, or the installed package. */
const sources = fileURLToPath(new URL('../../js/src', import.meta.url));
const alias = existsSync(sources)
  ? [
      { find: /^@hanzoai\/pubsub$/, replacement: `${sources}/index.ts` },
      { find: /^@hanzoai\/pubsub\/react$/, replacement: `${sources}/react/index.ts` },
      { find: /^@hanzoai\/pubsub\/signed$/, replacement: `${sources}/signed/index.ts` },
      { find: /^@hanzoai\/pubsub\/soc$/, replacement: `${sources}/soc.ts` },
    ]
  : [];

/** Tokens for development, one per request. */
function tokens(server: string): Plugin {
  return {
    name: 'pubsub-token',
    configureServer: ({ middlewares }) => {
      middlewares.use('/pubsub-token', async (request, response) => {
        const user = new URL(request.url ?? '', server).searchParams.get('user');
        const answer = await fetch(`${server}/console/token`, {
          method: 'POST',
          headers: { 'Content-Type': 'application/json', Origin: server },
          body: JSON.stringify({ user }),
        }).catch(() => undefined);
        response.statusCode = answer?.status ?? 502;
        response.setHeader('Content-Type', 'application/json');
        const { token, expires_at: expiresAt } = answer?.ok ? await answer.json() : {};
        response.end(JSON.stringify({ token, expiresAt }));
      });
    },
  };
}

export default defineConfig({
  plugins: [tokens(process.env['PUBSUB_HTTP'] ?? 'http://127.0.0.1:8056')],
  resolve: { alias, dedupe: ['react', 'react-dom'] },
});
