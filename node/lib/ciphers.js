'use strict';

// OpenSSL's language for lists of suites, over those that are offered here: names, classes of them,
// and words that add, take away and put last.

const { constants } = require('node:crypto');
const tls = require('node:tls');
const { OptionError, invalidValue } = require('./errors.js');
const { SUITES, listed, sameName } = require('./offers.js');
const { warnOnce } = require('./warnings.js');

/**
 * The list that the runtime is made with. Bun and Deno have their own lists, which no program and
 * no flag has set: nothing is warned of them.
 */
const RUNTIME_LIST =
  process.versions.bun || process.versions.deno
    ? tls.DEFAULT_CIPHERS
    : constants.defaultCoreCipherList;

/**
 * Reads `ciphers`. As in node, a list that names no suite of TLS 1.3 leaves those as they are, and
 * one that names no other means TLS 1.3 alone. As in OpenSSL, unknown suites are ignored.
 *
 * @param {string} list
 * @param {string} option
 * @returns {{ suites: string[], only13: boolean, without13: boolean }} `without13`: it names suites
 * of TLS 1.3, and none of them is offered
 */
function readSuites(list, option) {
  // As in OpenSSL, a word ends where an order or an exclusion begins, with or without a colon.
  const words = list.split(/[:,; ]+|(?=[@!])/).filter((word) => word !== '');
  const absent = [];
  const of13 = words.filter((word) => /^!?TLS_/i.test(word) && !/_WITH_/i.test(word));
  const rules = words.filter((word) => !of13.includes(word));
  const newer = read13(of13, absent);
  const older = new Choice();
  for (const rule of rules) {
    older.obey(rule, option, absent);
  }
  const isEmpty = rules.length > 0 ? older.chosen.length === 0 : newer.length === 0;
  if (words.length === 0 || isEmpty) {
    throw nothingLeft(list, option);
  }
  if (absent.length > 0 && list !== RUNTIME_LIST) {
    const text = `${option} names ${listed(absent)}, which sealane does not offer and passes over`;
    warnOnce(text);
  }
  return {
    suites: [...newer, ...older.chosen],
    only13: rules.length === 0,
    without13: newer.length === 0 && of13.some((word) => !word.startsWith('!')),
  };
}

/** Suites of TLS 1.3: those that are named, or else all but those that are taken away. */
function read13(words, absent) {
  const all = names(OF_13);
  const wanted = words.filter((word) => !word.startsWith('!'));
  const removed = words.filter((word) => word.startsWith('!')).map((word) => word.slice(1));
  absent.push(...wanted.filter((word) => !all.some((name) => sameName(name, word))));
  const named = wanted.flatMap((word) => all.filter((name) => sameName(name, word)));
  const kept = wanted.length > 0 ? [...new Set(named)] : all;
  return kept.filter((name) => !removed.some((word) => sameName(word, name)));
}

/** Suites of TLS 1.2 in the order that rules have brought about. */
class Choice {
  chosen = [];
  #banned = new Set();

  /** One rule: a class or a name, alone or behind its sign; or an order. */
  obey(rule, option, absent) {
    if (rule.startsWith('@')) {
      this.#order(rule, option);
      return;
    }
    if (rule.startsWith('SUITEB')) {
      const reason = `says '${listed([rule])}', which is not offered`;
      const instead = 'name its suites, and its curves by ecdhCurve';
      throw invalidValue(option, undefined, reason, instead);
    }
    const sign = /^[!+-]/.test(rule) ? rule[0] : '';
    const meant = matching(rule.slice(sign.length));
    if (sign === '' && meant.length === 0) {
      absent.push(rule);
    }
    const without = this.chosen.filter((name) => !meant.includes(name));
    switch (sign) {
      case '!':
        for (const name of meant) this.#banned.add(name);
        this.chosen = without;
        break;
      case '-':
        this.chosen = without;
        break;
      case '+':
        this.chosen = [...without, ...this.chosen.filter((name) => meant.includes(name))];
        break;
      default:
        this.#add(meant);
    }
  }

  #add(meant) {
    const isNew = (name) => !this.chosen.includes(name) && !this.#banned.has(name);
    this.chosen = [...this.chosen, ...meant.filter(isNew)];
  }

  #order(rule, option) {
    const level = /^@SECLEVEL=([0-5])$/.exec(rule)?.[1];
    if (rule === '@STRENGTH') {
      const isLong = (name) => !name.includes('AES_128');
      this.chosen.sort((one, other) => isLong(other) - isLong(one));
    } else if (level === undefined || level > LEVEL_MAX) {
      const reason = `says '${listed([rule])}', which is not offered`;
      const instead = `leave it out, or say @SECLEVEL=${LEVEL_MAX}, which holds anyway`;
      throw invalidValue(option, undefined, reason, instead);
    }
  }
}

/** IANA's names of those that a name, a class, or several classes between plus signs mean. */
function matching(word) {
  const sets = word.split('+').map((part) => {
    const named = OF_12.filter((row) => row.some((name) => sameName(name, part)));
    return named.length > 0 ? named : OF_12.filter(([name]) => CLASSES[part]?.test(name));
  });
  return names(sets[0].filter((row) => sets.every((set) => set.includes(row))));
}

function nothingLeft(list, option) {
  const shown = listed(list.split(':'));
  const reason = `names nothing that is offered: no cipher match in ${shown}`;
  const offered = SUITES.map((row) => row[1]).join(':');
  const instead = `name some of these, between colons: ${offered}`;
  return new OptionError('ERR_SSL_NO_CIPHER_MATCH', option, reason, instead);
}

function names(rows) {
  return rows.map((row) => row[0]);
}

const OF_13 = SUITES.filter(([name]) => !name.includes('_WITH_'));
const OF_12 = SUITES.filter(([name]) => name.includes('_WITH_'));
/** Keys of 2,048 bits, suites of 128: OpenSSL's level 2. */
const LEVEL_MAX = 2;
const ANY = /^/;
const AES = /AES/;
const RSA = /ECDHE_RSA/;
const ECDSA = /ECDHE_ECDSA/;

/** OpenSSL's classes, by a suite's name, without those that would be empty. */
const CLASSES = Object.freeze({
  __proto__: null,
  AES,
  AES128: /AES_128/,
  AES256: /AES_256/,
  AESGCM: AES,
  ALL: ANY,
  CHACHA20: /CHACHA20/,
  DEFAULT: ANY,
  ECDH: ANY,
  ECDHE: ANY,
  ECDSA,
  EECDH: ANY,
  FIPS: AES,
  HIGH: ANY,
  'TLSv1.2': ANY,
  aECDSA: ECDSA,
  aRSA: RSA,
  kECDHE: ANY,
  kEECDH: ANY,
});

module.exports = { RUNTIME_LIST, readSuites };
