/** Runs before the page is drawn, so that a dark page does not start with a white flash. */

import { applyTheme, chosenTheme } from './theme.js';

applyTheme(chosenTheme());
