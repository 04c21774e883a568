"""Who somebody is: development tokens, JWTs by JWKS, API keys."""
