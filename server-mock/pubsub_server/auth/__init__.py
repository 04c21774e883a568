"""Who someone is: development tokens, JWTs by JWKS, API keys."""
