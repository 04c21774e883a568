from hanzoai.pubsub import PubSubClient

ps = PubSubClient(
    url="wss://pubsub.hanzo.ai:8057/ws",
    token="Bearer ey...",
)

# Service-side publish
await ps.publish("agent.bot1.events", {
    "type": "agent.status",
    "data": {"status": "thinking", "task": "code_review"},
})

# Subscribe for monitoring
async for msg in ps.subscribe("agent.**.events"):
    log_agent_event(msg)
