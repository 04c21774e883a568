import { PubSub } from '@hanzoai/pubsub'

const ps = new PubSub({
  url: 'wss://pubsub.hanzo.ai:8057/ws',
  token: 'Bearer ey...',
})

// Subscribe with history replay
const sub = await ps.subscribe('chat.session.abc', {
  since: Date.now() - 60_000,  // last 60 seconds
  onMessage: (msg) => {
    if (msg.type === 'token') {
      appendToken(msg.data.content)
    }
  },
  onPresence: (members) => {
    updatePresenceUI(members)
  },
})

// Publish (if permitted)
await ps.publish('chat.session.abc', {
  type: 'presence.update',
  data: { status: 'typing' },
})

// Cleanup
sub.unsubscribe()
ps.disconnect()
