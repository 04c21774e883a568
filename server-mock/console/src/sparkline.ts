/** A small chart of the last minute. */

import { svg } from './dom.js';
import { linePoints } from './rates.js';

/** Draws into one SVG element, repeatedly. */
export class Sparkline {
  readonly element: SVGElement;
  private readonly _line = svg('polyline', { fill: 'none' });
  private readonly _area = svg('polygon', { class: 'area' });

  constructor(
    private readonly _width: number,
    private readonly _height: number,
  ) {
    this.element = svg(
      'svg',
      {
        class: 'sparkline',
        viewBox: `0 0 ${_width} ${_height}`,
        preserveAspectRatio: 'none',
        'aria-hidden': 'true',
      },
      this._area,
      this._line,
    );
  }

  /** Show these samples, the newest last. */
  draw(values: readonly number[]): void {
    const points = linePoints(values, this._width, this._height);
    this._line.setAttribute('points', points);
    this._area.setAttribute('points', `0,${this._height} ${points} ${this._width},${this._height}`);
  }
}
