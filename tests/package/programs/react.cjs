const react = require('@hanzoai/pubsub/react');
const sdk = require('@hanzoai/pubsub');
const server = require('react-dom/server');
const { render } = require('./rendered.cjs');

process.stdout.write(JSON.stringify(render(sdk, react, server)));
