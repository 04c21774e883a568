// What the test gives: JSON on standard input, and a WebSocket where Node has none of its own.
const { readFileSync } = require('node:fs');

exports.readGiven = () => {
  const given = JSON.parse(readFileSync(0, 'utf8'));
  if (typeof WebSocket === 'undefined') given.options.WebSocket = require('./ws').WebSocket;
  return given;
};
