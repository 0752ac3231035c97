// @ts-check
// The tag of the templates that all components draw with.
import { h } from "preact";
import htm from "htm";

/** @typedef {(e: KeyboardEvent & {currentTarget: any}) => unknown} Handler */

/** @type {(strings: TemplateStringsArray, ...values: (Handler | object | string | number | boolean | null | undefined)[]) => any} */
export const html = htm.bind(h);
