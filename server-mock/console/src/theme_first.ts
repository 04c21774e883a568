/** Runs before the page is drawn, so that a dark page does not begin with a white flash. */

import { applyTheme, chosenTheme } from './theme.js';

applyTheme(chosenTheme());
