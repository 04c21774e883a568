// A component that shows its client, rendered on a server: a client given, and one of the provider's.
const { createElement } = require('react');

exports.render = ({ PubSub }, { PubSubProvider, useConnectionState, usePubSub }, server) => {
  const options = { url: 'ws://127.0.0.1:1/ws', token: 'x', WebSocket: class {} };
  const client = new PubSub(options);
  const Shown = () => {
    const own = usePubSub();
    return `${useConnectionState()} ${own instanceof PubSub} ${own === client}`;
  };
  return [{ client }, { options }].map((props) =>
    server.renderToString(createElement(PubSubProvider, props, createElement(Shown))),
  );
};
